-- What wrk sends, from the files of a folder: headers, body, a token a line, a body a line; and its figures as one line of JSON.

local requests, turn = {}, 0

local function lines_of(path)
  local found = {}
  for line in io.lines(path) do
    if line ~= "" then found[#found + 1] = line end
  end
  return found
end

function init(arguments)
  local folder, method = arguments[1], arguments[2]
  local headers = {}
  for _, line in ipairs(lines_of(folder .. "/headers")) do
    local name, value = line:match("^(.-): (.*)$")
    headers[name] = value
  end
  local file = io.open(folder .. "/body", "rb")
  local body = file:read("*a")
  file:close()
  if body == "" then body = nil end
  for _, token in ipairs(lines_of(folder .. "/tokens")) do
    headers["Authorization"] = "Bearer " .. token
    requests[#requests + 1] = wrk.format(method, nil, headers, body)
  end
  for _, each in ipairs(lines_of(folder .. "/bodies")) do
    requests[#requests + 1] = wrk.format(method, nil, headers, each)
  end
  if #requests == 0 then requests[1] = wrk.format(method, nil, headers, body) end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    'figures: {"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "failed": %d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
