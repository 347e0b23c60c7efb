"""Command lines of golden transcripts: stories that begin in a folder of inputs."""

_ENCODER = "sublayer train encoder.toml --out encoder"
_TUNE = (
    "train.steps=12 train.evaluate_steps=4 train.batch_sequences=16 optimizer.lr=2e-2 "
    "train.precision=float32 train.threads=1"
)

RUNS = f"""
    sublayer train small.toml --out small
    sublayer train recurrent.toml --out recurrent
    sublayer train deep.toml --out deep
    {_ENCODER}
    sublayer finetune encoder my.csv --text review --label stars {_TUNE} --out mine
    """
"""Runs that mistakes are made with."""

STORIES = {
    "decoder": """
        sublayer train small.toml train.checkpoint_steps=12 train.keep_checkpoints=2 --out \
            runs/small
        sublayer train runs/small --resume train.steps=30
        sublayer train runs/small --resume --json
        sublayer evaluate runs/small
        sublayer evaluate runs/small --split test --stride 1 --json
        sublayer evaluate runs/small --path other.txt --average 2
        sublayer generate runs/small --prompt "The " --tokens 12 --temperature 0
        sublayer generate runs/small --prompt "The " --tokens 40 --temperature 0.5 --top-k 5 \
            --top-p 0.9 --seed 3 --batch 2 --window rolling --json
        sublayer generate runs/small --prompt "The " --tokens 40 --stop a --batch 2
        sublayer inspect layers runs/small --tokens 256
        sublayer inspect layers runs/small --path other.txt --tokens 256 --json
        sublayer inspect paths runs/small --tokens 4 --out paths.svg
        sublayer inspect splitting runs/small --tokens 256
        sublayer evaluate runs/small --probes sst2 --path glue
        sublayer evaluate runs/small --probes sst2 --path glue --words bad,good --reference \
            sst2=0.9 --json
        sublayer export runs/small exported
        sublayer import huggingface exported --out runs/imported --json
        sublayer report runs/small
        cat runs/small/report.html
        sublayer recipes small.toml --changed
        sublayer runs
        sublayer runs --json
        """,
    "recurrent": """
        sublayer train recurrent.toml --out recurrent
        sublayer evaluate recurrent --json
        sublayer generate recurrent --prompt "The " --tokens 12 --temperature 0
        sublayer train deep.toml --out deep
        sublayer evaluate deep
        sublayer inspect layers deep --tokens 256 --json
        """,
    "encoder": f"""
        {_ENCODER}
        sublayer evaluate encoder
        sublayer evaluate encoder --split test --pairs 20 --json
        sublayer inspect layers encoder --tokens 128 --beyond 1
        sublayer inspect paths encoder --tokens 3 --json
        sublayer export encoder exported
        sublayer import huggingface exported --out imported
        sublayer evaluate imported --path other.txt --pairs 20 --json
        sublayer fill imported --text "The [MASK] is great, the [MASK] is dull." --n 3
        sublayer embed imported lines.txt --out vectors.npy --normalize --json
        """,
    "translator": """
        sublayer train translator.toml --out translator
        sublayer evaluate translator --split test
        sublayer evaluate translator --json --beam 3 --length-rule gnmt --length-penalty 0.6 \
            --lowercase --compounds
        sublayer evaluate translator --average 2 --against translator
        sublayer translate translator < few.en
        sublayer translate translator --n-best 2 --beam 2 --max-length-ratio 1 \
            --max-length-offset 5 < few.en
        sublayer translate translator --average 2 --words --json < few.en
        sublayer export translator exported
        sublayer import huggingface exported --out imported --json
        """,
    "gaps": f"""
        sublayer train gaps.toml --out gaps
        sublayer evaluate gaps
        sublayer evaluate gaps --split test --json
        sublayer generate gaps --prompt "The <extra_id_0> is great."
        sublayer generate gaps --prompt "The <extra_id_0> is <extra_id_1>." --beam 2 --tokens \
            8 --json
        sublayer finetune gaps sst2 --data glue {_TUNE} --out sst2
        sublayer evaluate sst2 --answer rank
        sublayer evaluate sst2 --json
        sublayer predict sst2 < lines.txt
        sublayer export gaps exported
        sublayer fill gaps --text "The [MASK] is great." --n 2 --json
        sublayer finetune gaps my.csv --text review --target film {_TUNE} --out written
        sublayer predict written new.csv --beam 2
        """,
    "classes": f"""
        {_ENCODER}
        sublayer finetune encoder my.csv --text review --label stars --group film {_TUNE} --out mine
        sublayer evaluate mine
        sublayer evaluate mine --path my.csv --json
        sublayer predict mine new.csv
        sublayer predict mine new.csv --json --batch 2
        sublayer predict mine < lines.txt
        sublayer predict mine new.csv --out answered.tsv
        cat answered.tsv
        sublayer finetune encoder my.csv --text review --label stars --group film {_TUNE} \
            --seeds 2 --out both
        sublayer evaluate mine both/seed-0 both/seed-1
        sublayer evaluate mine both/seed-0 --choose greedy --json
        sublayer evaluate mine --against both/seed-0
        sublayer predict mine both/seed-0 new.csv --json
        sublayer export mine exported
        sublayer report mine
        cat mine/report.html
        sublayer runs . --arms
        """,
    "answers": f"""
        {_ENCODER}
        sublayer finetune encoder my.csv --text review --label rating --number train.steps=60 \
            train.evaluate_steps=20 train.batch_sequences=16 optimizer.lr=1e-2 \
            train.precision=float32 train.threads=1 --out rating --json
        sublayer evaluate rating
        sublayer predict rating new.csv
        sublayer finetune encoder questions.csv --text passage --text-pair question --answer \
            answer {_TUNE} --out spans
        sublayer evaluate spans --json
        sublayer predict spans questions.csv --json --out answered.jsonl
        sublayer finetune encoder choices.csv --text start --choices first,second --label \
            right {_TUNE} --out choices
        sublayer evaluate choices
        sublayer train small.toml --out small
        sublayer finetune small rte --data glue {_TUNE} --preset gpt1 \
            optimizer.warmup_share=0.1 --out rte
        sublayer predict rte --submission handed --data glue
        sublayer predict rte --submission again --data glue --json
        sublayer evaluate small rte encoder --suite suite.toml --csv card.csv --html card.html
        cat card.csv
        cat card.html
        """,
    "plain": """
        sublayer compare small.toml --vary model.ffn=gelu,swiglu --seeds 3 --out runs/plain
        sublayer compare small.toml --vary model.ffn=gelu,swiglu --seeds 4 --out runs/plain \
            --details
        cat runs/plain/report.html
        sublayer report runs/plain --json --table runs.csv --table runs.md --table runs.tex
        cat runs.csv
        cat runs.md
        cat runs.tex
        sublayer runs
        sublayer runs --arms --json
        """,
    "tuned": """
        sublayer compare small.toml --vary model.norm=layer,rms --seeds 3 --tune \
            optimizer.lr=1e-3,1e-2 --tuning-seeds 2 --extend 1 --margin 0.5 --match flops --out \
            tuned --details
        cat tuned/report.html
        """,
    "sequential": """
        sublayer compare small.toml --vary optimizer.lr=1e-2,1e-5,1.001e-2 --until decided \
            --seeds-at-most 5 --margin "0.05 bits per byte" --match none --out sequential
        sublayer compare small.toml --vary optimizer.lr=1e-2,1e-5,1.001e-2 --until decided \
            --seeds-at-most 5 --margin "0.05 bits per byte" --match none --out sequential --details
        """,
    "failed": """
        sublayer compare small.toml --vary optimizer.lr=1e-2,1e-4,1e30 --seeds 3 --match none \
            --out failed
        sublayer compare small.toml --vary optimizer.lr=1e-2,1e-4,1e30 --seeds 3 --match none \
            --out failed --details
        """,
    "chained": """
        sublayer plan stages.toml --data glue
        sublayer compare stages.toml --data glue --out chained
        sublayer compare stages.toml --data glue --out chained --details
        cat chained/report.html
        """,
    "finished": """
        sublayer train small.toml --out gelu
        sublayer train small.toml model.ffn=swiglu --out swiglu
        sublayer train small.toml model.ffn=swiglu train.seed=1 --out swiglu-1
        sublayer compare gelu swiglu swiglu-1 --out finished
        """,
    "help": """
        sublayer
        sublayer --version
        sublayer demo --help
        sublayer recipes --help
        sublayer fields --help
        sublayer plan --help
        sublayer train --help
        sublayer finetune --help
        sublayer compare --help
        sublayer judge --help
        sublayer report --help
        sublayer runs --help
        sublayer check --help
        sublayer tasks --help
        sublayer evaluate --help
        sublayer inspect --help
        sublayer generate --help
        sublayer fill --help
        sublayer embed --help
        sublayer predict --help
        sublayer translate --help
        sublayer tokenize --help
        sublayer import --help
        sublayer export --help
        sublayer completion --help
        """,
    "judged": """
        sublayer judge scores/base.csv scores/new.csv
        sublayer judge scores/base.csv scores/new.csv --look 3 --looks 20 --json
        sublayer judge scores/base.csv scores/new.csv --html page.html --table runs.md
        cat page.html
        cat runs.md
        """,
    "plan": """
        sublayer plan small.toml
        sublayer plan small.toml --json
        sublayer plan small.toml --vary model.ffn=gelu,swiglu --seeds 3 --margin 0.01
        sublayer plan small.toml --vary model.ffn=gelu,swiglu --tune optimizer.lr=1e-3,1e-2 \
            --tuning-seeds 2 --extend 1 --until decided --seeds-at-most 8 --match flops --json
        sublayer plan small.toml recurrent.toml --match none
        sublayer plan albert-base --processes 8 --device h100 --share 0.4
        sublayer plan wmt14-base-transformer data.source_path=a data.target_path=b --processes \
            2 --device a100 --link 50 --json
        sublayer plan demo train.precision=float32
        sublayer plan gelu-swiglu train.precision=float32
        """,
    "recipes": """
        sublayer recipes
        sublayer recipes gpt
        sublayer recipes albert-base --changed
        sublayer recipes llama-2023 model.d_ff=512 --json
        sublayer recipes macaron --diagram
        sublayer recipes wmt14-base-macaron --diagram
        sublayer recipes gpt --diagram --out gpt.svg
        """,
    "fields": """
        sublayer fields
        sublayer fields d_ff
        sublayer fields warm
        sublayer fields model.positions --json
        """,
    "tasks": """
        sublayer tasks
        sublayer tasks glue
        sublayer tasks rte --show
        sublayer tasks sst2 --show --data glue --row 1
        sublayer tasks squad --show --json
        sublayer tasks sst2 --json
        sublayer tokenize --path book.txt --kind wordpiece --vocab-size 60 --out tokenizer.json
        sublayer tasks sst2 --show --data glue --tokenizer tokenizer.json
        """,
    "tokenize": """
        sublayer tokenize --path book.txt --vocab-size 270 --out bpe.json --text "The great film"
        sublayer tokenize bpe.json --text "The great film" --json
        sublayer tokenize bpe.json < marked.txt
        sublayer tokenize --path book.txt --kind unigram --vocab-size 60 --sentinels 4 --out \
            unigram.json --text "The <extra_id_0> film"
        sublayer tokenize --path book.txt --kind wordpiece --vocab-size 60 --out \
            wordpiece.json --text "The great café" --json
        sublayer tokenize --path book.txt --kind gpt1-bpe --vocab-size 90 --out gpt1.json \
            --text "The great café" --json
        sublayer tokenize gpt1.json --differences < marked.txt
        sublayer tokenize --path book.txt --kind characters --out characters.json --text "The \
            great café" --json
        sublayer tokenize --path pairs.en --kind word-bpe --vocab-size 60 --out words.json \
            --text "the old dog" --json
        sublayer tokenize --path pairs.en --kind moses-bpe --vocab-size 60 --out moses.json \
            --text "the old dog" --json
        """,
    "programs": """
        sublayer completion bash
        sublayer completion zsh
        sublayer completion fish --json
        sublayer inspect splitting
        sublayer inspect splitting --json
        """,
}
"""By name: command lines, a line each."""

STUDIES = ("plain", "tuned", "sequential", "failed", "chained", "finished")
"""Stories that leave a comparison, whose ``results.json`` is held as well."""
