#!/bin/sh
# Make the runs of this folder with an earlier version, in a folder that holds `texts/`: sh make.sh CHECKOUT
set -e
export PYTHONPATH="$1" SUBLAYER_CACHE="$PWD/cache"
SUBLAYER="$1/.venv/bin/python -m sublayer"
STOPPED="$1/.venv/bin/python stop.py"
# With an ordinary eps, Adam makes full steps of rounding alone where a gradient is 0, as that of the
# keys' biases, and processors round differently.
SMALL="model.n_layers=1 model.d_model=8 model.n_heads=2 model.d_ff=16 model.dropout=0.1
 data.split=60/20/20 optimizer.lr=0.01 optimizer.eps=0.0001 optimizer.warmup_steps=1 train.steps=6
 train.checkpoint_steps=3 train.evaluate_steps=3 train.log_steps=1 train.threads=1
 train.precision=float32"

# The interruption comes while the file or folder named first is put into its place for the n-th time.
cat > stop.py <<'END'
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
END

train() {
  kind=$1
  shift
  $SUBLAYER train "$@" $SMALL --out $kind/finished --device cpu
  $STOPPED step-00000003 1 train "$@" $SMALL --out $kind/stopped --device cpu || true
  $SUBLAYER evaluate $kind/finished --split test --device cpu --json > $kind/evaluated.json
}

train causal gpt data.path=texts/plain.txt data.tokenizer=bytes data.context=16 \
  train.batch_sequences=4
train masked bert-base data.path=texts/sentences.txt data.sentences=lines \
  data.documents=blank-line data.tokenizer=texts/vocab.txt data.context=24 train.batch_sequences=4 \
  objective.masking=ngram objective.ngram_longest=2 objective.mask_most=4 objective.alone=negative
train translation multi30k-tiny data.source_path=texts/pairs.en data.target_path=texts/pairs.de \
  data.tokenizer=word-bpe data.vocab_size=60 data.moses=none data.context=40 \
  data.longest_words=12 data.words_ratio=3.0 train.batch_tokens=160

$SUBLAYER generate causal/finished --prompt "the dog" --tokens 20 --temperature 0 --device cpu \
  --json > causal/generated.json
printf 'the old dog sees the small cat .\nthe red fox hears the quiet bird .\n' |
  $SUBLAYER translate translation/finished --beam 2 --longest-share 2 --longest-more 5 --device cpu \
  --json > translation/translated.json

$STOPPED recipe.toml 2 compare gpt data.path=texts/plain.txt data.context=16 \
  train.batch_sequences=4 $SMALL --vary model.ffn=gelu,swiglu --match none --seeds 2 --out study \
  --device cpu || true
