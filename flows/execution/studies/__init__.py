"""Several runs of a pipeline that answer one question: backtest, tune, ablate."""
