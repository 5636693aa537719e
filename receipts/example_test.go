package receipts_test

import (
	"fmt"

	"counterfoil/receipts"
)

// A wallet's chain: each receipt carries the hash of the one before it, as that one
// was signed.
func ExampleChainHash() {
	first := &receipts.Claims{ID: "rcp_1", Seq: 1}
	input, err := receipts.SigningInput("kid", first)
	if err != nil {
		fmt.Println(err)
		return
	}
	second := &receipts.Claims{ID: "rcp_2", Seq: 2, Prev: receipts.ChainHash(input)}
	fmt.Println(second.Seq, len(second.Prev))
	// Output: 2 64
}
