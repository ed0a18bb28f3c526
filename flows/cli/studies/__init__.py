"""Commands that run the pipeline several times to learn something about it; they promote nothing unless asked to."""
