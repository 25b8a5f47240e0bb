"""May these two partitions be compared at all?  Pure rules over identities and loads, and canaries.

`policy` is what each item means by class (data), `compare` applies the rules of `processor`, `placement`,
`devices`, `system` and `during`; `canaries` name a missing feature from measurements alone.
"""
