"""From Spark's columns to values of Python's, and to what a class wants of them.

`columns` makes the plain values of a column, `parameters` knows what a class or
function takes, `annotated` makes values as an annotation has them, or refuses.
"""
