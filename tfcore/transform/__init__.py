"""From raw columns to model inputs: configured, fitted on train statistics, run in the graph."""
