"""Costs of heads: what each field of a head costs who reads it, for each kind of value, at the largest size.

`python -m tests.headcosts` prints the tables: a field in each row, a kind of value in each column, milliseconds of
processor time. A head is read by four doors: the bundled server, an endpoint in a framework, a client, and the guard in
both directions.

The yardstick is a field that means nothing here, of the same size and kind. To read one is the least that can be, and
no field may cost much more (`BOUND`).
"""
