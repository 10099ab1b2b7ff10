// SPDX-License-Identifier: Apache-2.0

package dataplane

import "sync"

// scanners are the scanners of the Kernels that have scanned, by *Kernel.
var scanners sync.Map

// scanner returns what k keeps for its scans.
func (k *Kernel) scanner() *scanner {
	s, _ := scanners.LoadOrStore(k, &scanner{})
	return s.(*scanner)
}

// closeScanner gives back what k keeps for its scans.
func (k *Kernel) closeScanner() {
	if s, found := scanners.LoadAndDelete(k); found {
		s.(*scanner).close()
	}
}
