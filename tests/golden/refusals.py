"""Command lines with mistakes, each of which is refused in one line."""

REFUSED = {
    "refused-settings": """
        : trian gpt; train
        train: gtp; missing.toml; book.txt; glue; gpt data.path
        plan gpt: model.d_modle=16; d_model=16; modle.d_model=16
        train gpt: --d-model 16; --steps=16; --sseed 1; --model.d_model=16
        plan gpt: model.d_model=wide; model.d_model=0; model.d_model=1.5; \
            model.d_model=16 model.d_model=32; model.ffn=gleu; model.bias=maybe; \
            optimizer.lr=fast; optimizer.lr=-1; optimizer.lr=nan; optimizer.betas=0.9; \
            optimizer.kind=adamx; optimizer.momentum=0.9; optimizer.schedule=linaer; \
            optimizer.warmup_steps=100 optimizer.warmup_share=0.1; \
            train.steps=8 optimizer.warmup_steps=100; \
            optimizer.schedule=constant optimizer.min_lr=0.1; model.n_heads=7; \
            model.d_model=15 model.n_heads=5 model.positions=rotary; model.rotary_base=500; \
            model.swish_beta=2; model.score_cap=0; model.logit_cap=0.0; model.logit_cap=tanh; \
            model.attention_scale=0; model.attention_scale=-1; model.output_scale=0; \
            model.kind=lstm model.sinks=true; \
            model.block=macarena; "model.block=['ffn*half','attention']"; \
            "model.block=['ffn*0','attention']"; "model.block=['attention:gelu']"; \
            "model.block=['ffn:gleu']"; "model.block=[]"; "model.block=['cross','ffn']"; \
            "model.block=['attention']" model.d_ff=32; \
            model.share=attention "model.block=['ffn']"; model.share_groups=9; \
            model.share=all model.share_inner=4; model.norm=none model.final_norm=true; \
            model.softmax=all model.d_embed=8; model.positions=relative model.relative_buckets=31; \
            model.positions=relative model.relative_distance=2; \
            model.vocab_multiple=7 model.vocab_size=256; model.max_len=16; model.segments=both; \
            model.attention_window=129; model.attention_window=0; model.window_pattern=LG; \
            model.attention_window=8 model.window_pattern=GG; \
            model.attention_window=8 model.window_pattern=local; \
            model.attention_window=8 model.window_pattern=LLLLLLG; \
            model.positions=rotary model.rotary_local_base=500; model.position_pattern=PN; \
            model.positions=rotary model.position_pattern=N; \
            model.kind=encoder; model.kind=lstm model.init=t5; model.dropout=1.5; \
            model.n_kv_heads=3; model.n_kv_heads=8; model.qk_norm=rsm; model.qk_norm_over=all; \
            model.qk_norm=rms model.qk_norm_place=after; model.positions=rotary model.qk_norm=rms \
            model.qk_norm_place=after model.qk_norm_gain=false; "model.bias={querry=true}"; \
            "model.bias={query=1}"; "model.bias={projection=true}"; \
            model.kind=lstm "model.bias={ffn=true}"; \
            objective.kind=masked; objective.kind=mask; objective.p_mask=0.8; \
            objective.targets=500; data.corpus=wikitext
        train small.toml: data.path=missing.txt; data.path=empty.txt; data.path=nul.txt; \
            data.path=latin.txt data.tokenizer=unigram; data.path=short.txt; data.path=few
        plan gpt: data.split=98/1; data.split=100/0/0 train.best_by=loss; data.tokenizer=bep; \
            data.tokenizer=bytes data.vocab_size=300
        train small.toml: data.path=book.txt data.tokenizer=missing.json; \
            data.path=book.txt data.tokenizer=broken.json
        plan gpt: data.merges=100 data.vocab_size=400; data.documents=lines
        : train small.toml data.path=book.txt data.documents=json
        plan gpt: data.sentences=prose; data.context=0; data.watch=wikitext; \
            "data.watch={valid='other.txt'}"; data.tasks=sst2; \
            data.tasks=sts2 objective.kind=supervised; data.source_path=pairs.en; \
            "data.path={'book.txt'=-1}"; "data.path={'book.txt'=1}" data.windows=shuffled; \
            train.steps=5 train.minutes=1; train.steps=0; train.steps=1e3; train.steps=ten; \
            train.precision=float16; train.best_by=accuracy; \
            train.keep_steps=[5,5] train.steps=10; train.keep_steps=[50] train.steps=10; \
            train.shard=full train.exact=true; train.evaluate_stride=999; train.probes=colla; \
            "train.probes={cola=''}"; train.seed=-1; train.threads=0; init.run=missing; \
            init.freeze=head init.run=encoder; init.layers=2
        train gpt: --device tpu; --device cuda:99
        train small.toml: data.path=book.txt --out book.txt; data.path=book.txt --out glue; \
            --out ""; data.path=; "data.path=['book.txt','']"; init.run=; data.path=missing/*.txt; \
            data.path=https://example.org/book.txt
        plan albert-small: data.tokenizer=bpe; data.sentences=none; data.context=4; \
            objective.p_mask=0.9 objective.p_random=0.2; model.sentence_classes=0; \
            objective.pairs=sentences; objective.sentence=none objective.single_sentence=negative; \
            data.sentinels=10; train.compile=true
        : train multi30k-tiny
        plan multi30k-tiny: data.corpus=python; \
            data.source_path=pairs.en data.target_path=pairs.de data.tokenizer=bytes; \
            data.source_path=pairs.en data.target_path=pairs.de objective.beam=0; \
            data.source_path=pairs.en data.target_path=pairs.de "model.decoder_block=['attention']"
        plan t5-mini: data.tokenizer=bpe; data.sentinels=0; data.sentinels=2; \
            data.sentences=prose; objective.noise_density=0.999; objective.mean_span=99; \
            objective.raw_length=9999; objective.target_length=9
        train: circle.toml; typo.toml; flat.toml; nobase.toml; bad.toml
        """,
    "refused-studies": """
        recipes: gtp; gpt --diagram --changed; gpt --out gpt.svg; gpt --diagram --out gpt.png
        fields: d_fff; --schema d_ff
        plan gpt --vary: model.ffn; model.ffn=gelu; model.ffn=gelu,gelu; model.ffm=gelu,swiglu
        plan gpt: model.ffn=gelu --vary model.ffn=gelu,swiglu; --vary model.n_heads=4,7; \
            --device tpu; --processes 0; --processes 2 --device mi300; \
            --share 2 --processes 2; --link 50
        plan: ""; demo --scale paper; albert-base --seeds 0; gpt --finetunings 2
        compare: gpt; gtp llama-2023; gpt --vary model.ffn=gelu,swiglu --match params; \
            gpt --vary model.ffn=gelu,swiglu --match flops --match-multiple 8; \
            gpt --vary model.ffn=gelu,swiglu --seeds 2; \
            gpt --vary model.ffn=gelu,swiglu --seeds many; \
            gpt --vary model.ffn=gelu,swiglu --until bored; \
            gpt --vary model.ffn=gelu,swiglu --seeds-at-most 9; \
            gpt --vary model.ffn=gelu,swiglu --until decided; \
            gpt --vary model.ffn=gelu,swiglu --until decided --seeds-at-most 2; \
            gpt --vary model.ffn=gelu,swiglu --margin big; \
            gpt --vary model.ffn=gelu,swiglu --margin "0.01 points"; \
            gpt --vary model.ffn=gelu,swiglu --margin=-1; \
            gpt --vary model.ffn=gelu,swiglu --tuning-seeds 2; \
            gpt --vary model.ffn=gelu,swiglu --extend 2; \
            gpt --vary model.ffn=gelu,swiglu --tune model.ffn=gelu,swiglu; \
            gpt --vary model.ffn=gelu,swiglu --tune optimizer.lr=1e-3; \
            gpt --vary model.ffn=gelu,swiglu --tune train.seed=1,2; \
            gpt --vary model.ffn=gelu,swiglu --first-seed 1000 --tune optimizer.lr=1e-3,1e-2; \
            gpt --vary train.seed=1,2; gpt train.seed=1 --vary model.ffn=gelu,swiglu; \
            gpt --vary model.ffn=gelu,swiglu --scale cpu; \
            gpt --vary model.ffn=gelu,swiglu --data glue; \
            gpt --vary model.ffn=gelu,swiglu --table a.csv --table a.csv; \
            gpt --vary model.ffn=gelu,swiglu --table missing/a.csv; \
            gpt --vary model.ffn=gelu,swiglu --on kubernetes; \
            gpt --vary model.ffn=gelu,swiglu --jobs 0; gpt encoder.toml; gpt translator.toml; \
            gpt llama-2023 --vary model.ffn=gelu,swiglu; \
            gpt --vary model.ffn=gelu,swiglu --out glue; \
            demo --vary model.ffn=gelu,swiglu; twice.toml; one.toml; unknown.toml; claim.toml; \
            stages.toml --on slurm --jobs 2; after.toml; taskless.toml
        """,
    "refused-judgements": """
        judge: bad/nan.csv; bad/infinite.csv; bad/text.csv; bad/comma.csv; bad/empty.csv; \
            bad/nameless.csv; bad/twice.csv; bad/seeds.csv; bad/ragged.csv; bad/two-seeds.csv; \
            bad/one-seed.csv; bad/one-arm.csv; bad/header-only.csv; bad/none.csv; \
            bad/columns.csv; bad/columns.csv --arm columns; bad/metrics.csv; bad/score.csv; \
            bad/models.csv; bad/rows-base.csv bad/rows-new.csv; bad/twin.csv; bad/items.csv; \
            bad/items.csv --common --document seed; bad/no-items.csv; \
            bad/documents.csv --document doc; bad/steps.csv; bad/steps.csv --at 20; \
            bad/runs.csv; bad/runs.csv --names "{arm}"; bad/broken.jsonl; \
            bad/items.csv bad/rows-base.csv; bad/missing.csv; bad/twice.csv bad
        judge scores/base.csv: scores/new.csv --margin=-0.1; scores/new.csv --margin 0; \
            scores/new.csv --look 3; scores/new.csv --look 21 --looks 20; \
            scores/new.csv --seed sed; scores/new.csv --value seed --seed columns; \
            scores/new.csv --new other; scores/new.csv --new base --baseline base; \
            scores/new.csv --arm columns --seed columns; scores/new.csv --at last; \
            scores/new.csv --html page.txt; scores/new.csv --table my.csv; small; book.txt; \
            scores/new.csv --names seed; scores/new.csv --step columns; glue; \
            scores/base.csv; scores/new.csv --html no/page.html; scores/new.csv --task arc; \
            scores/new.csv --ledger glue; scores/new.csv --ledger book.txt; \
            scores/new.csv --document seed; scores/new.csv --item seed --seed seed; \
            bad/percent.csv; bad/accuracy.csv; https://example.org/new.csv
        """,
    "refused-tasks": """
        tasks: missing; coal; sst3; glue --show; cola --show --data glue; sst2 --row 1; \
            sst2 --show --data glue --row 99; --data glue
        predict: mine ""; small new.csv; mine missing.csv; mine glue; mine book.txt; \
            mine questions.csv; mine new.csv --text reviw; mine new.csv --text-pair film; \
            mine new.csv --choices a,b; mine new.csv --out new.csv; mine new.csv --task rte; \
            mine --submission handed; mine new.csv --submission handed; mine ragged.csv; \
            mine encoder new.csv
        : finetune; finetune small "" --text a --label b
        finetune: small; mine --resume; missing sst2 --data glue; small sst3 --data glue; \
            small cola --data glue; small sst2 --data missing; small sst2 rte.lr=1 --data glue; \
            small missing.csv --text a --label b; small my.csv; small my.csv --text review; \
            small my.csv --text reviw --label stars; small my.csv --text review --label review; \
            small my.csv --text review --label stars --number; \
            small my.csv --text review --label stars --choices a; \
            small my.csv --text review --label rating; small my.csv --text review --answer stars; \
            small ragged.csv --text review --label stars; \
            small same.csv --text review --label stars; small sst2 --data glue --text sentence; \
            small sst2 my.csv --data glue; small sst2 --data glue --preset berd; \
            small sst2 --data glue --preset t5; small sst2 --data glue --seeds 0; \
            small sst2 --data glue model.d_model=32; small sst2 --data glue objective.kind=causal; \
            small sst2 --data glue optimizer.lr=high; gpt sst2 --data glue data.tokenizer=bep
        """,
    "refused-models": """
        report: missing; missing --verify; small --verify; book.txt; glue; \
            small --out my.csv; small --table my.csv; small --table my.txt; \
            small --table a.tex
        : runs missing; tokenize
        tokenize --path: book.txt; missing.txt --out t.json; book.txt --kind bep --out t.json; \
            book.txt --kind bpe --vocab-size 100 --out t.json; book.txt --kind bpe --out my.csv; \
            book.txt --kind bpe --sentinels 5 --out new.json; \
            book.txt --normalization published --out new.json
        tokenize: missing.json --text a; broken.json --text a; small --path book.txt; \
            small --differences; small --vocab-size 300; small --kind unigram
        : completion tcsh; inspect
        inspect: layer small; layers; layers small --path missing.txt; \
            layers small --path short.txt; layers small --beyond 2; layers small --out plot.png; \
            paths small --tokens 1; splitting encoder
        : evaluate
        embed: missing book.txt --out v.npy; encoder missing.txt --out v.npy; \
            encoder glue --out v.npy; encoder book.txt --out my.csv; \
            encoder book.txt --out missing/v.npy
        fill: small --text "a [MASK]"; encoder --text "no mask"
        evaluate: missing; glue; broken; damaged; small --split train; \
            small --path missing.txt; small --path short.txt; small --path other.txt --split test; \
            small --path other.txt --corpus python; small --corpus wikitext; small --stride 99; \
            small --pairs 10; small --beam 3; small --answer rank; small --against mine; \
            small --average 5; small --choose greedy; small --csv card.csv; small --task sst2; \
            small --lowercase; small encoder; small --probes sst3 --path glue; \
            small --probes cola --path glue; small --probes sst2 --path glue --words bad; \
            small --probes sst2 --path glue --reference sst2=2; small --words bad,good; \
            small --suite missing.toml; small --suite glue; small --suite small.toml; \
            small --probes ""; encoder --stride 4; encoder --probes sst2 --path glue; \
            mine --against small; mine --answer rank; mine --task nosuch; \
            mine --path questions.csv; mine encoder
        generate: small; "" --prompt The; glue/rte --prompt The; small --prompt ""; \
            small --prompt The --tokens 0; \
            small --prompt The --temperature=-1; small --prompt The --top-p 2; \
            small --prompt The --temperature 0 --top-k 5; small --prompt The --beam 3; \
            small --prompt The --window open; small --prompt The --seed 1.5; \
            small --prompt The --stop ""; encoder --prompt The; mine --prompt The; \
            recurrent --prompt The --window rolling
        translate: small < few.en; encoder < few.en; missing < few.en; small --beam 0 < few.en
        import: huggingface glue; gpt1-numpy glue; fairseq glue; fairseq my.csv; \
            albert-tf glue; pytorch glue; fairseq missing.pt; gpt1-numpy missing; \
            huggingface small --out glue; huggingface small
        export: missing out; small glue; small out --to coreml; recurrent out --class GPT-2; \
            deep out --class GPT-2; small out --class GPT-3; small out --class T5
        """,
}
"""By name: what mistakes begin with, a colon, and mistakes with semicolons between them."""
