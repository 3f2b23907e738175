-- Takes a lease, unless another holder has it.
--
-- KEYS: lease, fence (see docs/formats.md). ARGV: holder; time in milliseconds.
-- Answers the fence in eight bytes, or nothing.

local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 9) ~= ARGV[1] then
  return false
end
-- Never a number that was given before, also where a failover has lost the last ones.
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local now = redis.call('TIME')
local fence = math.max(last + 1, now[1] * 1000000 + now[2])
local stamp = struct.pack('>I8', fence)
redis.call('SET', KEYS[2], string.format('%.0f', fence))
redis.call('SET', KEYS[1], stamp .. ARGV[1], 'PX', ARGV[2])
return stamp
