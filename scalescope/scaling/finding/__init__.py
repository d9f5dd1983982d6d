"""Findings, typed: what costs a step time, with the cause's code, its size, the evidence and the remedy.

Every sentence that says what is wrong is made from these, and nothing here is a sentence: `scalescope.report` has the
words for every code. docs/concepts.md explains the vocabulary, docs/method/findings.md each code.
"""
