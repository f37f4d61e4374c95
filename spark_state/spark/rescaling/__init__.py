"""Gives a stopped query on cowstate's provider another number of partitions."""
