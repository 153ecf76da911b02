package e2e

func processFaults() []outside { return nil }
func stateFaults() []outside   { return nil }
func machineFaults() []outside { return nil }
