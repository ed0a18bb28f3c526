"""Built-in models, and models of a user's module.

Keras's `load_model` knows Headway's layers after `import tfcore.models.build`.
"""
