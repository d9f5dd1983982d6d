"""How the ranks share the work: a package a strategy, and the table of them (registry). Each says in `config`, without
torch, what its keys are, what it sends and what does not go with it; its `strategy` runs the steps."""
