"""One training step under the glass: `headway debug step`; see `tfcore.debug.inspect_step`."""
