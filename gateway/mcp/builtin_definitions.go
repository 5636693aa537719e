package mcp

// builtinDefinitions stand after the catalogue, at the end of a list's first page. Resuming is not called read-only: it
// answers a call that was made before, and where that one waits for something, it is what lets it go on.
const builtinDefinitions = `{"name":"` + operationGet + `","title":"Look at an operation",` +
	`"description":"Shows what became of one call that this agent's wallets paid for: its state, outcome, reason, what to do next (retry), credits and signed receipt. Use it with the counterfoil/operation_id of an answer, before acting again. Free; changes nothing.",` +
	`"inputSchema":{"type":"object","properties":{"operation_id":{"type":"string","description":"op_…, from the answer to the call"}},"required":["operation_id"],"additionalProperties":false},` +
	`"outputSchema":` + operationSchema + `,"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},` +
	`{"name":"` + operationResume + `","title":"Ask for an operation again",` +
	`"description":"Answers as if the original call were sent again under its own key: the stored result of a call that has finished, or that it still runs. It begins no new operation and pays nothing twice. Only the agent that made the call can resume it.",` +
	`"inputSchema":{"type":"object","properties":{"operation_id":{"type":"string","description":"op_…, from the answer to the call"}},"required":["operation_id"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":true}},` +
	`{"name":"` + permitGet + `","title":"See what a permit allows",` +
	`"description":"Shows a permit of this agent: tools, limits, what is spent and held, what remains, and from when to when it is valid. Without permit_id it shows the permit that calls are made under. Free; changes nothing.",` +
	`"inputSchema":{"type":"object","properties":{"permit_id":{"type":"string","description":"prm_…; left out: the permit that calls are made under"}},"additionalProperties":false},` +
	`"outputSchema":` + permitSchema + `,"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`

const operationSchema = `{"type":"object","properties":{` +
	`"id":{"type":"string"},` +
	`"state":{"type":"string","enum":["awaiting_approval","awaiting_input","dispatching","finished","reconciled"]},` +
	`"outcome":{"type":"string","enum":["succeeded","denied","failed","delivery_uncertain","reconciled"]},` +
	`"reason":{"type":"string"},"resolution":{"type":"string","enum":["delivered","not_delivered"]},` +
	`"retry":{"type":"string","enum":["same_key","new_key","check","never"]},` +
	`"tool":{"type":"string"},"wallet_id":{"type":"string"},"permit_id":{"type":"string"},"agent_id":{"type":"string"},` +
	`"idempotency_key":{"type":"string"},` +
	`"call_identity":{"type":"object","properties":{"platform":{"type":"string"},"call_id":{"type":"string"}},"required":["platform","call_id"]},` +
	`"key_source":{"type":"string"},` +
	`"credits_authorized":` + schemaCount + `,"credits_held":` + schemaCount + `,"credits_charged":` + schemaCount + `,` +
	`"value":{"type":"object","properties":{"currency":{"type":"string"},"amount":` + schemaCount + `},"required":["currency","amount"]},` +
	`"round":{"type":"object","properties":{"number":` + schemaCount + `,"asked_at":{"type":"string"},"expires_at":{"type":"string"}},"required":["number","asked_at","expires_at"]},` +
	`"operation_ref":{"type":"string"},"receipt_id":{"type":"string"},` +
	`"receipt":{"type":"string","description":"compact JWS"},"receipt_pending":{"type":"boolean"},` +
	`"created_at":{"type":"string"},"finished_at":{"type":"string"}},` +
	`"required":["id","state","tool","wallet_id","permit_id","agent_id","key_source","credits_authorized","credits_held","credits_charged","created_at"]}`

const permitSchema = `{"type":"object","properties":{` +
	`"id":{"type":"string"},"status":{"type":"string","enum":["active","not_yet_valid","expired","revoked"]},` +
	`"wallet_id":{"type":"string"},"scope":{"type":"string"},"tools":{"type":"array","items":{"type":"string"}},` +
	`"limits":{"type":"object","properties":{"credits":` + schemaCount + `},"required":["credits"]},` +
	`"deny_args":{"type":"array","items":{"type":"string"}},"recipient":{"type":"object"},"approval":{"type":"object"},` +
	`"not_before":{"type":"string"},"expires_at":{"type":"string"},` +
	`"usage":{"type":"object","properties":{"credits_spent":` + schemaCount + `,"credits_held":` + schemaCount + `,"calls_total":` + schemaCount + `,` +
	`"calls":{"type":"object"},"value_spent":` + schemaCount + `,"value_held":` + schemaCount + `},` +
	`"required":["credits_spent","credits_held","calls_total","calls","value_spent","value_held"]},` +
	`"remaining":{"type":"object","properties":{"credits":` + schemaCount + `,"calls_total":` + schemaCount + `,"calls":{"type":"object"},"value":` + schemaCount + `},"required":["credits"]}},` +
	`"required":["id","status","wallet_id","scope","tools","limits","not_before","expires_at","usage","remaining"]}`

const schemaCount = `{"type":"integer","minimum":0}`
