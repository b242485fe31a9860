// An OpenID provider for tests, on loopback: panva's certified oidc-provider, with accounts that a test
// names in the request itself, and a few switches under /test/.
//
//   node provider.mjs PORT CLIENT_ID CLIENT_SECRET REDIRECT_URI...
//
// /test/groups?user=U&groups=a,b   what is said of a user from now on
// /test/rotate                     new keys; the old ones are published no more
// /test/forget?user=U              the user is gone: what they were given is of no use

import { createServer } from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const modules = process.env.FAIRLEAD_OIDC_PROVIDER;
const { default: Provider } = await import(
  pathToFileURL(`${modules}/node_modules/oidc-provider/lib/index.js`).href
);

const [port, clientId, clientSecret, ...redirectUris] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const groups = new Map();
const gone = new Set();

// One store for every provider that is made here, so that what was given outlives new keys.
const kept = new Map();
class Adapter {
  constructor(model) { this.model = model; }
  key(id) { return `${this.model}:${id}`; }
  async upsert(id, payload) { kept.set(this.key(id), payload); }
  async find(id) { return kept.get(this.key(id)); }
  async findByUid(uid) { return this.first((it) => it.uid === uid); }
  async findByUserCode(code) { return this.first((it) => it.userCode === code); }
  first(is) {
    for (const [key, it] of kept) if (key.startsWith(`${this.model}:`) && is(it)) return it;
    return undefined;
  }
  async consume(id) {
    const found = kept.get(this.key(id));
    if (found) found.consumed = Math.floor(Date.now() / 1000);
  }
  async destroy(id) { kept.delete(this.key(id)); }
  async revokeByGrantId(grantId) {
    for (const [key, it] of kept) if (it.grantId === grantId) kept.delete(key);
  }
}

function provider() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
  const made = new Provider(issuer, {
    adapter: Adapter,
    jwks: { keys: [key] },
    clients: [{
      client_id: clientId,
      client_secret: clientSecret,
      redirect_uris: redirectUris,
      grant_types: [
        'authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code',
      ],
      response_types: ['code'],
    }],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'], groups: ['groups'] },
    scopes: ['openid', 'offline_access', 'email', 'profile', 'groups'],
    features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true }, userinfo: { enabled: true } },
    pkce: { required: () => true },
    cookies: { keys: ['test'] },
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    ttl: { AccessToken: 600, IdToken: 600, RefreshToken: 86400, Session: 86400, Grant: 86400, Interaction: 600, DeviceCode: 600 },
    findAccount: async (_ctx, id) => (gone.has(id) ? undefined : {
      accountId: id,
      claims: async () => ({
        sub: id, email: `${id}@shop.example`, email_verified: true, name: id, groups: groups.get(id) ?? [],
      }),
    }),
    loadExistingGrant: async (ctx) => {
      // Whoever logs in agrees to everything.
      const { client, session, params } = ctx.oidc;
      const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(params.scope);
      await grant.save();
      return grant;
    },
    renderError: (ctx, out) => { ctx.type = 'json'; ctx.body = out; },
  });
  return { made, handle: made.callback() };
}

let current = provider();

createServer(async (request, response) => {
  const url = new URL(request.url, issuer);
  const answer = (status, body) => { response.statusCode = status; response.end(body); };
  try {
    if (url.pathname === '/test/groups') {
      groups.set(url.searchParams.get('user'), (url.searchParams.get('groups') ?? '').split(',').filter(Boolean));
      return answer(200, 'ok');
    }
    if (url.pathname === '/test/rotate') {
      current = provider();
      return answer(200, 'ok');
    }
    if (url.pathname === '/test/forget') {
      gone.add(url.searchParams.get('user'));
      return answer(200, 'ok');
    }
    if (url.pathname.startsWith('/interaction/')) {
      // The account is named in the request: a test is its own user.
      const user = url.searchParams.get('user') ?? request.headers['x-user'];
      if (!user) return answer(401, 'who?');
      return await current.made.interactionFinished(request, response, { login: { accountId: user } }, { mergeWithLastSubmission: false });
    }
    return await current.handle(request, response);
  } catch (error) {
    console.error(error);
    return answer(500, String(error));
  }
}).listen(Number(port), '127.0.0.1', () => console.log('listening'));
