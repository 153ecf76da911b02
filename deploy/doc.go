// Package deploy holds no code: it is how the daemon is run, in a cluster, as an
// image and on a single machine. Its tests check that what is written here fits
// together, and fits the program.
package deploy
