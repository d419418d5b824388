"""`make bench`: the speed of Armillary on this machine, compared with the machine's own limits and with other
servers."""
