"""What each verb of the command line does with the arguments behind it.

One file a verb, with a `run(argv)` that returns the exit code and raises UserError or RunError. The front door loads a
verb's file only when that verb is called; what a mistyped word need not wait for is imported later still.
"""
