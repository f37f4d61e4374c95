"""How values of one Arrow type are checked and brought into their form, in state and in output."""
