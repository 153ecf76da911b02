//go:build !crashpoints

package crash

// Arm says which kind of process this is. In a normal build it does nothing.
func Arm(Kind) {}

// At is passed at a moment of an effect. In a normal build it does nothing.
func At(Effect, Moment) {}

// File is At of an effect that writes one file. In a normal build it does nothing.
func File(string, Moment) {}
