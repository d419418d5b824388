"""The values of traversals: elements, typed values, numbers, dates, comparison and predicates."""
