-- Chains of refresh tokens: each answer's successor is what somebody sends next. Tokens are a line each; a header
-- `Idempotency-Key` is the beginning of a key that is new for each request.

local waiting, first, last, sent = {}, 1, 0, 0
local headers, key = {}, nil

local function lines_of(path)
  local found = {}
  for line in io.lines(path) do
    if line ~= "" then found[#found + 1] = line end
  end
  return found
end

local function put(token)
  last = last + 1
  waiting[last] = token
end

function init(arguments)
  local folder = arguments[1]
  for _, line in ipairs(lines_of(folder .. "/headers")) do
    local name, value = line:match("^(.-): (.*)$")
    if name == "Idempotency-Key" then key = value else headers[name] = value end
  end
  for _, token in ipairs(lines_of(folder .. "/tokens")) do put(token) end
end

function request()
  local token = waiting[first]
  if token then
    waiting[first] = nil
    first = first + 1
  end
  sent = sent + 1
  if key then headers["Idempotency-Key"] = string.format("%s-%030d", key, sent) end
  return wrk.format("POST", nil, headers, string.format('{"refresh": "%s"}', token or "none is left"))
end

function response(status, _, body)
  local token = status == 200 and body:match('"refresh"%s*:%s*"([^"]+)"')
  if token then put(token) end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    'figures: {"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "failed": %d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
