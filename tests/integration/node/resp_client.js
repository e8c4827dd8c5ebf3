// SPDX-License-Identifier: Apache-2.0
// ioredis against a RESP door: node resp_client.js PORT [PASSWORD]. Prints what it was answered.
'use strict';
const Redis = require('ioredis');

async function main() {
  const [port, password] = process.argv.slice(2);
  const redis = new Redis({
    host: '127.0.0.1', port: Number(port), password, connectionName: 'node',
    maxRetriesPerRequest: 0, retryStrategy: () => null,
  });
  const answers = {};
  answers.ping = await redis.ping();
  answers.name = await redis.client('GETNAME');
  answers.throttle = await redis.call('CL.THROTTLE', 'node', '1', '1', '3600');
  const pipeline = redis.pipeline();
  for (let i = 0; i < 3; i += 1) pipeline.call('CL.THROTTLE', 'node', '1', '1', '3600');
  pipeline.call('SLUICE.CHECK', 'LIMIT', 'login', 'node');
  pipeline.call('NONSENSE');
  answers.pipeline = (await pipeline.exec()).map(([error, reply]) => (error ? error.message : reply));
  answers.deleted = await redis.del('node');
  await redis.quit();
  process.stdout.write(JSON.stringify(answers));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
