"""The steps, by what they do. Each module registers its builders with `registry.builds`."""
