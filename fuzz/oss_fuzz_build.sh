#!/bin/bash -eu
# The build script of an OSS-Fuzz project, and what ClusterFuzzLite runs: one executable, seed corpus and dictionary for
# each target, named as they are expected there. The image is gcr.io/oss-fuzz-base/base-builder-python, $SRC/streamcodec
# the checkout; $OUT and `compile_python_fuzzer` come with it.
cd "$SRC/streamcodec"
# The tests hold the cases and captures that seeds are made of.
python3 -m pip install '.[test]'

declare -A dictionaries=([header]=json [decoder]=json [oracle]=json [frame]=json [http]=http [compression]=compression)
seeds=$(mktemp -d)
python3 fuzz/make_corpus.py --into "$seeds"

for program in fuzz/fuzz_*.py; do
    target=$(basename "$program" .py)
    name=${target#fuzz_}
    compile_python_fuzzer "$program" --paths fuzz
    (cd "$seeds/$name" && zip -q -r "$OUT/${target}_seed_corpus.zip" .)
    if [ -n "${dictionaries[$name]:-}" ]; then
        cp "fuzz/${dictionaries[$name]}.dict" "$OUT/$target.dict"
    fi
done
