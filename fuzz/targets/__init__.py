"""The fuzz targets: importable without Atheris, so that the tests can replay what a fuzzer has found."""
