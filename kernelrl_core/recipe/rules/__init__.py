"""Rules about recipes: mistakes that the types of the schema do not express, and keys without effect."""
