-- Changes entries of one shard in one step, if all that is expected holds.
--
-- KEYS: names, entries, sequence, counters, changed (see docs/formats.md); then the payloads of all
--   deletions and puts, in their order; then the staged payloads, in the order of their puts. A cluster that moves the slot refuses a script whose
--   keys are not all in one place, as long as it is told of all of them.
-- ARGV: mode; a sequence of eight bytes, or '' to take the next; count of staged payloads;
--   count of expectations, and kind, name, detail of each;
--   count of deletions, and their names;
--   count of puts, and name, tail, value, payload of each: a tail of '' keeps the payload, one
--   that begins with 2 says that it is staged;
--   count of counters, and name, what is added of each.
-- Modes: 'one'; for a batch of every place: 'begin' judges at home and takes a sequence, 'home' and
--   'copy' change a place, but for names that a later batch has changed there.
-- Answers the place of the first expectation that does not hold, or the sequence in eight bytes.

local names, entries, sequence, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local changed = KEYS[5]
local mode, given = ARGV[1], ARGV[2]
local staged_count = tonumber(ARGV[3])
local staged_at = #KEYS - staged_count + 1
local at = 4
local payload_at = 6

local function next_arg()
  at = at + 1
  return ARGV[at - 1]
end

-- A call takes some thousand arguments at most.
local STEP = 1000

-- Expectations of entries are judged with few calls: each costs more than what it does.
local expects_count = tonumber(next_arg())
for from = 0, expects_count - 1, STEP do
  local count = math.min(STEP, expects_count - from)
  local asked = {}
  for place = at, at + 3 * count - 1, 3 do
    asked[#asked + 1] = ARGV[place + 1]
  end
  local there = redis.call('HMGET', entries, unpack(asked))
  for index = 1, count do
    local kind, name, detail = next_arg(), next_arg(), next_arg()
    local entry, holds = there[index], nil
    if kind == 'absent' then
      holds = not entry
    elseif kind == 'present' then
      holds = entry
    elseif kind == 'at' then
      holds = entry and string.sub(entry, 1, 8) == detail
    else
      local found = redis.call('ZRANGEBYLEX', names, '[' .. name, '(' .. detail, 'LIMIT', 0, 1)
      holds = #found == 0
    end
    if not holds then
      if staged_count > 0 then
        redis.call('UNLINK', unpack(KEYS, staged_at))
      end
      return from + index - 1
    end
  end
end

if staged_count > 0 and redis.call('EXISTS', unpack(KEYS, staged_at)) ~= staged_count then
  return redis.error_reply('GONE a staged payload')
end

local deletes_count = tonumber(next_arg())
local deletes_from = at
at = at + deletes_count
local puts_count = tonumber(next_arg())
local puts_from = at
at = at + 4 * puts_count
local counts_count = tonumber(next_arg())
local counts_from = at

if puts_count == 0 then
  -- The first write takes no memory, so a server that is full lets the others pass.
  redis.call('PERSIST', sequence)
end
local last = tonumber(redis.call('GET', sequence) or '0')
local number
if given == '' then
  -- Never a number that was given before, also where a failover has lost the last ones.
  local now = redis.call('TIME')
  number = math.max(last + 1, now[1] * 1000000 + now[2])
else
  number = struct.unpack('>I8', given)
end
local stamp = struct.pack('>I8', number)
if number > last then
  redis.call('SET', sequence, string.format('%.0f', number))
end
if mode == 'begin' then
  return stamp
end

-- Whether this batch is the latest for a name in this place.
local function is_latest(name)
  if mode == 'one' then
    return true
  end
  local before = redis.call('HGET', changed, name)
  if before and struct.unpack('>I8', before) > number then
    return false
  end
  redis.call('HSET', changed, name, stamp)
  return true
end

if mode == 'one' then
  for from = deletes_from, deletes_from + deletes_count - 1, STEP do
    local to = math.min(from + STEP, deletes_from + deletes_count) - 1
    redis.call('ZREM', names, unpack(ARGV, from, to))
    redis.call('HDEL', entries, unpack(ARGV, from, to))
    redis.call('UNLINK', unpack(KEYS, payload_at, payload_at + to - from))
    payload_at = payload_at + to - from + 1
  end
else
  for place = deletes_from, deletes_from + deletes_count - 1 do
    local name = ARGV[place]
    if is_latest(name) then
      redis.call('ZREM', names, name)
      redis.call('HDEL', entries, name)
      redis.call('UNLINK', KEYS[payload_at])
    end
    payload_at = payload_at + 1
  end
end

for place = puts_from, puts_from + 4 * puts_count - 1, 4 do
  local name, tail, value, payload =
    ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
  if is_latest(name) then
    if mode == 'copy' then
      -- It has no name in the order and no payload: nobody reads a copy, but for expectations.
      redis.call('HSET', entries, name, stamp .. string.rep('\0', 9) .. value)
    else
      if tail == '' then
        local before = redis.call('HGET', entries, name)
        tail = before and string.sub(before, 9, 17) or string.rep('\0', 9)
      elseif string.byte(tail) == 1 then
        redis.call('SET', KEYS[payload_at], payload)
      elseif string.byte(tail) == 2 then
        redis.call('RENAME', KEYS[staged_at], KEYS[payload_at])
        redis.call('PERSIST', KEYS[payload_at])
        staged_at = staged_at + 1
        tail = '\1' .. string.sub(tail, 2)
      else
        redis.call('UNLINK', KEYS[payload_at])
      end
      if redis.call('HSET', entries, name, stamp .. tail .. value) == 1 then
        redis.call('ZADD', names, 0, name)
      end
    end
  end
  payload_at = payload_at + 1
end

for place = counts_from, counts_from + 2 * counts_count - 1, 2 do
  redis.call('HINCRBY', counters, ARGV[place], ARGV[place + 1])
end
return stamp
