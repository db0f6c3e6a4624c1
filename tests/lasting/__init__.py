"""The names that outlive a process: one that a process of before wrote, one of now must understand.

``docs/lasting-names.csv`` lists them, ``docs/ended-names.csv`` those that nothing writes any more.
"""
