// Package simulation plays histories of Trainyard: the real loop with the real
// Decide and the real rules of what a push may overwrite, and around them a
// world made of a seed. Git remote, API server, nodes, pods, people and clocks
// are simulated, with all that can go wrong between them and the daemon.
//
// A history is one seed. Its daemons run as coroutines: each effect is a point
// at which anything else may come first, the daemon killed among it. So the same
// seed gives the same history, on every machine. The laws are checked as things
// happen, and once more when everything has come to rest.
package simulation
