"""Seeds of the corpora: valid inputs, or with one thing wrong, for the fuzzer to begin with."""
