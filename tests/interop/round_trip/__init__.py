"""What we write, the peers' own codecs read to the same bits, and the reverse, over messages that Hypothesis makes.

No network: tritonclient's codec runs in this process, KServe's in a process of its environment (`kserve_script.py`). A
message is drawn in a plain form that all of them can be given and asked for (`plain.py`). Where a peer loses
something, the strategy leaves out exactly that, and a test of its own shows the loss.

    .venv/bin/python -m pytest tests/interop/round_trip                        # about 100 messages for each way
    STREAMCODEC_LONG=1 .venv/bin/python -m pytest tests/interop/round_trip     # 2,500; with KServe some minutes

KServe's half is skipped, loudly, unless STREAMCODEC_KSERVE_PYTHON names the interpreter of an environment that has it.
"""
