package simulation

import (
	"io"
	"strings"
)

// Shrink finds a shorter history that breaks the same law as the one of a seed,
// as far as that goes within so many tries, and writes its trace.
func Shrink(seed uint64, tries int, trace io.Writer) Result {
	worst := Play(seed, nil)
	if worst.Violation == "" {
		return worst
	}
	s := shrinker{seed: seed, law: lawOf(worst.Violation), draws: worst.draws, left: tries}
	for s.left > 0 && (s.dropSteps() || s.dullDraws()) {
	}
	r := play(choices{again: s.draws}, trace)
	r.Seed = seed
	return r
}

type shrinker struct {
	seed  uint64
	law   string
	draws [][]uint16
	left  int
}

// lawOf is a violation without the names in it.
func lawOf(violation string) string {
	var words []string
	for _, w := range strings.Fields(violation) {
		if !strings.ContainsAny(w, "-0123456789{}:") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// try takes other draws over, if they break the same law.
func (s *shrinker) try(draws [][]uint16) bool {
	if s.left--; s.left < 0 {
		return false
	}
	r := play(choices{again: draws}, nil)
	if r.Violation == "" || lawOf(r.Violation) != s.law {
		return false
	}
	s.draws = draws
	return true
}

// dropSteps leaves steps out, many at first. The first, in which the world is
// made, and the last, in which it comes to rest, stay.
func (s *shrinker) dropSteps() (better bool) {
	for size := len(s.draws) / 2; size > 0; size /= 2 {
		for from := 1; from+size < len(s.draws); {
			fewer := append(append([][]uint16{}, s.draws[:from]...), s.draws[from+size:]...)
			if s.try(fewer) {
				better = true
			} else {
				from += size
			}
		}
	}
	return better
}

// dullDraws puts the dullest choice in the place of others.
func (s *shrinker) dullDraws() (better bool) {
	for i := range s.draws {
		for j := range s.draws[i] {
			if s.draws[i][j] == 0 {
				continue
			}
			duller := append([][]uint16{}, s.draws...)
			duller[i] = append([]uint16{}, s.draws[i]...)
			duller[i][j] = 0
			better = s.try(duller) || better
		}
	}
	return better
}
