"""The stage that analyses the user's preprocess function over the train rows."""
