"""A package with an application further down."""
