"""Rules beside the default one: each a pure fold over the same rounds, in a file of its own."""
