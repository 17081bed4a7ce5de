"""What starts runs, one file for each type of trigger; what comes over HTTP is in `inbound`."""
