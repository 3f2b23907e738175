-- Prolongs a lease, or gives it back, if it is still held.
--
-- KEYS: lease. ARGV: fence and holder, as kept; time in milliseconds, or '' to give it back.
-- Answers 1, or 0 where it is no longer held.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
