#!/bin/bash -eu
# The same build as for OSS-Fuzz: each target, its seed corpus and its dictionary.
"$SRC/streamcodec/fuzz/oss_fuzz_build.sh"
