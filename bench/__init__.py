"""`make bench`: how fast Armillary is on this machine, beside what this machine can do and beside other servers."""
