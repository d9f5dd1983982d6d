"""What a replay is wrong by itself where a change sends other things, or at other times: by changes that were made.

Of 12 changes of one job (GPT-2 124M under DDP) on record, prediction less measurement: eager on four H200s (A) and on
two (U), compiled on four (Q) and on two (F, of advice that was followed); `benchmarks/measured/whatif.py` reads them.
Those have in them what the replay does not know (what a cut of the graph costs, how far compute slows beside transfers,
that work waits for casts), and what medians of unchanged jobs differ by, up to 1%: no record tells them apart.
"""

#: Half of the 95% interval, a share of the step: the residuals' root mean square (1.198%) × Student's t of 12 (2.179).
#: By the other machines' changes alone, 0.022 to 0.030 of the step, 11 of the 12 are inside.
MODEL_ERROR = 0.0262
