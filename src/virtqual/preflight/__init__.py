"""The admission of runs: rules over identities and loads, what refuses a check, and canaries.

`policy` is what each rule means by class (data), `compare` applies the rules of `processor`, `locality`,
`devices`, `system` and `during`; `canaries` name a missing feature from measurements alone.
"""
