// Package e2e tests the whole program against real parts: the built binary,
// real Git repositories and servers, real processes. It holds no code that the
// program uses.
package e2e
