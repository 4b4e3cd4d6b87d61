"""Other programs' protocols, spoken by this one."""
