"""The stage that analyses a user's preprocess over the train rows."""
