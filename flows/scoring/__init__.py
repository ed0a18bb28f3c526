"""`headway predict`: batch prediction with a registered model."""
