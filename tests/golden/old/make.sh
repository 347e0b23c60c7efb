#!/bin/sh
# Make the runs, exports and studies of a commit, in a folder that holds `texts/`:
# sh make.sh COMMIT CHECKOUT [PYTHON]
set -e
commit=$1 checkout=$2 python=${3:-$2/.venv/bin/python}
export PYTHONPATH="$checkout" SUBLAYER_CACHE="$PWD/cache"
SUBLAYER="$python -m sublayer"
STOPPED="$python stop.py"
# With an ordinary eps, Adam makes full steps of rounding alone where a gradient is 0, as that of the
# keys' biases, and processors round differently.
LENGTH="train.steps=6 train.checkpoint_steps=3 train.evaluate_steps=3 train.log_steps=1 train.threads=1
 train.precision=float32"
MODEL="model.n_layers=1 model.d_model=8"
SIZES="$MODEL model.n_heads=2 model.d_ff=16 optimizer.lr=0.01 optimizer.eps=0.0001
 optimizer.warmup_steps=1 $LENGTH"
SMALL="$SIZES model.dropout=0.1"
SPLIT="data.split=60/20/20"
PLAIN="data.path=texts/plain.txt data.context=16 train.batch_sequences=4 $SPLIT"

# The interruption comes while the file or folder named first is put into its place for the n-th time.
cat > stop.py <<'STOP'
import os, signal, sys
from sublayer.cli import main

name, left = sys.argv[1], int(sys.argv[2])


def stop(event, arguments):
    global left
    if event == "os.rename" and str(arguments[1]).endswith(name):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)


sys.addaudithook(stop)
sys.exit(main(sys.argv[3:]))
STOP

train() {
  kind=$commit/$1
  shift
  mkdir -p $kind
  $SUBLAYER train "$@" --out $kind/finished --device cpu
  $STOPPED step-00000003 1 train "$@" --out $kind/stopped --device cpu || true
  $SUBLAYER evaluate $kind/finished --split test --device cpu --json > $kind/evaluated.json
}

study() {
  kind=$commit/$1
  shift
  $SUBLAYER compare "$@" $PLAIN $SMALL --out $kind --device cpu
}

# In two processes, of which the first interrupts itself, and the other with it.
train_sharded() {
  kind=$commit/$1
  shift
  mkdir -p $kind
  together="$python -m torch.distributed.run --nproc-per-node 2 --standalone"
  $together -m sublayer train "$@" --out $kind/finished --device cpu
  $together stop.py step-00000003 1 train "$@" --out $kind/stopped --device cpu || true
  $SUBLAYER evaluate $kind/finished --split test --device cpu --json > $kind/evaluated.json
}

case $commit in
ba7f49d)
  train causal gpt $PLAIN $SMALL data.tokenizer=bytes
  train masked bert-base $SMALL $SPLIT data.path=texts/sentences.txt data.sentences=lines \
    data.documents=blank-line data.tokenizer=texts/vocab.txt data.context=24 train.batch_sequences=4 \
    objective.masking=ngram objective.ngram_longest=2 objective.mask_most=4 objective.alone=negative
  train translation multi30k-tiny $SMALL $SPLIT data.source_path=texts/pairs.en \
    data.target_path=texts/pairs.de data.tokenizer=word-bpe data.vocab_size=60 data.moses=none \
    data.context=40 data.longest_words=12 data.words_ratio=3.0 train.batch_tokens=160
  $SUBLAYER generate $commit/causal/finished --prompt "the dog" --tokens 20 --temperature 0 --device cpu \
    --json > $commit/causal/generated.json
  printf 'the old dog sees the small cat .\nthe red fox hears the quiet bird .\n' |
    $SUBLAYER translate $commit/translation/finished --beam 2 --longest-share 2 --longest-more 5 \
      --device cpu --json > $commit/translation/translated.json
  $SUBLAYER export $commit/causal/finished $commit/exported
  $STOPPED recipe.toml 2 compare gpt $PLAIN $SMALL --vary model.ffn=gelu,swiglu --match none \
    --seeds 2 --out $commit/study --device cpu || true
  ;;
d99a9b4)
  train span t5-mini $SMALL $SPLIT data.path=texts/plain.txt data.tokenizer=texts/tiny.model \
    data.sentinels=8 data.context=24 train.batch_sequences=4 model.vocab_multiple=1
  # Later versions draw another dropout for the few places that a task reads.
  train table albert-small $SIZES model.d_embed=8 objective.kind=supervised data.tasks=table \
    data.path=texts/animals.csv data.columns='{text="text",label="label"}' data.tokenizer=texts/vocab.txt \
    data.context=24 train.batch_sequences=4 train.best_by=last optimizer.kind=adamw
  $SUBLAYER export $commit/table/finished $commit/exported
  study study gpt --vary model.ffn=gelu,swiglu --match none --seeds 2
  ;;
ff3bb8a)
  # Else the interruption comes after the last step.
  SMALL="$SMALL train.save_in_background=false" LENGTH="$LENGTH train.save_in_background=false"
  train lstm gpt1-lstm $MODEL model.dropout=0.1 model.d_embed=6 optimizer.lr=0.01 optimizer.warmup_steps=1 $LENGTH $PLAIN \
    data.tokenizer=bytes
  train sentences albert-small $SMALL $SPLIT model.d_embed=6 data.path=texts/sentences.txt \
    data.sentences=lines data.documents=blank-line data.tokenizer=texts/vocab.txt data.context=24 \
    train.batch_sequences=4
  $SUBLAYER export $commit/sentences/finished $commit/exported
  study study gpt --vary model.ffn=gelu,swiglu --match none --seeds 3
  study chain texts/chain.toml
  ;;
d37b588)
  # Without dropout, which each process draws for itself, one process trains the same.
  PARTS="$PLAIN $MODEL model.n_heads=2 model.d_ff=15 model.ffn=swiglu model.bias=false data.tokenizer=bytes
 optimizer.lr=0.3 optimizer.warmup_steps=1 $LENGTH train.save_in_background=false train.best_by=last"
  train_sharded lamb gpt $PARTS optimizer.kind=lamb optimizer.eps=0.0001 train.shard=full
  train_sharded adafactor gpt $PARTS optimizer.kind=adafactor optimizer.min_factored=8 train.shard=optimizer
  ;;
esac
