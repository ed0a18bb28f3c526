"""What is told, as values, and how it is shown: as text, Markdown and HTML."""
